// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SettlementGateway} from "../../src/SettlementGateway.sol";
import {Balances} from "../../src/gateway/Balances.sol";
import {Deposits} from "../../src/gateway/Deposits.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {HostileUsdc} from "../support/HostileUsdc.sol";
import {vm} from "../support/Vm.sol";

contract DepositTest is GatewayTest {
    function test_aDepositIsCreditedInFull(uint256 value) public {
        value = _bound(value, 1, usdc.FAUCET_VALUE_MAX());
        _deposit(alice, value);

        vm.assertEq(_available(alice.addr), value);
        vm.assertEq(_withdrawing(alice.addr), 0);
        vm.assertEq(usdc.balanceOf(alice.addr), 0);
        vm.assertEq(usdc.balanceOf(address(gateway)), value);
    }

    function test_severalDepositsAddUp(uint64 first, uint64 second) public {
        uint256 a = _bound(first, 1, 1e12);
        uint256 b = _bound(second, 1, 1e12);
        _deposit(alice, a);
        _deposit(alice, b);
        vm.assertEq(_available(alice.addr), a + b);
    }

    function test_aDepositIsAnnouncedAsCircleDoes() public {
        _fund(alice, 5 * USDC);
        vm.expectEmit(address(gateway));
        emit Deposits.Deposited(USDC_ADDRESS, alice.addr, alice.addr, 5 * USDC);
        vm.prank(alice.addr);
        gateway.deposit(USDC_ADDRESS, 5 * USDC);
    }

    function test_anEmptyDepositIsRefused() public {
        vm.expectRevert(Deposits.DepositValueZero.selector);
        vm.prank(alice.addr);
        gateway.deposit(USDC_ADDRESS, 0);
    }

    function test_anotherTokenIsRefused(address other) public {
        vm.assume(other != USDC_ADDRESS);
        vm.expectRevert(abi.encodeWithSelector(Balances.UnsupportedToken.selector, other, USDC_ADDRESS));
        vm.prank(alice.addr);
        gateway.deposit(other, USDC);
    }

    function test_aDepositWithoutApprovalIsRefused() public {
        usdc.faucet(alice.addr, USDC);
        vm.expectRevert(
            abi.encodeWithSelector(IERC20Errors.ERC20InsufficientAllowance.selector, address(gateway), 0, USDC)
        );
        vm.prank(alice.addr);
        gateway.deposit(USDC_ADDRESS, USDC);
    }

    function test_nothingIsTakenWhilePaused() public {
        _fund(alice, USDC);
        _pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        vm.prank(alice.addr);
        gateway.deposit(USDC_ADDRESS, USDC);
    }

    // Mallory cannot be credited for money that did not arrive, even if the token lets some of it vanish on the way.
    function test_attack_aTokenThatKeepsAPartCreditsNobody(uint256 fee) public {
        fee = _bound(fee, 1, USDC);
        (SettlementGateway fooled, HostileUsdc token) = _newHostileGateway();
        token.setFee(fee);
        token.mint(mallory.addr, USDC);

        vm.expectRevert(abi.encodeWithSelector(Deposits.DepositNotReceived.selector, USDC, USDC - fee));
        vm.prank(mallory.addr);
        fooled.deposit(address(token), USDC);
        vm.assertEq(fooled.totalBalance(address(token), mallory.addr), 0);
    }

    // A plain transfer credits nobody. It also gives Mallory no way to claim it by a deposit of her own.
    function test_attack_aStrayTransferCannotBeClaimed() public {
        usdc.faucet(address(gateway), 100 * USDC);
        _deposit(mallory, USDC);
        vm.assertEq(_total(mallory.addr), USDC);
        vm.assertEq(_total(address(gateway)), 0);
    }

    // Balances count up to 2^96. Beyond that a credit in a batch could overflow and take its neighbours with it, so the
    // door is shut before.
    function test_attack_noDepositCanMakeABalanceOverflow(uint256 value) public {
        (SettlementGateway fooled, HostileUsdc token) = _newHostileGateway();
        uint256 most = type(uint96).max;
        token.mint(mallory.addr, type(uint256).max);

        vm.startPrank(mallory.addr);
        fooled.deposit(address(token), most);
        value = _bound(value, 1, type(uint256).max - most - 1);
        vm.expectRevert(abi.encodeWithSelector(Deposits.GatewayBalanceTooLarge.selector, most + value, most));
        fooled.deposit(address(token), value);
        vm.stopPrank();
    }

    function _newHostileGateway() private returns (SettlementGateway fooled, HostileUsdc token) {
        token = new HostileUsdc();
        fooled = _newGateway(address(token), WITHDRAWAL_DELAY);
        token.approveAll(address(fooled));
    }
}
