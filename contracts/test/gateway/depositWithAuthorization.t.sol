// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization} from "../../src/gateway/Authorizations.sol";
import {Balances} from "../../src/gateway/Balances.sol";
import {Deposits} from "../../src/gateway/Deposits.sol";
import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Account, Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

contract DepositWithAuthorizationTest is GatewayTest {
    using Signer for Authorization;

    function test_anyoneMayRelayADepositAndTheSignerIsCredited(uint256 value, address anyone) public {
        vm.assume(anyone != address(0) && anyone != address(gateway));
        value = _bound(value, 1, usdc.FAUCET_VALUE_MAX());
        usdc.faucet(alice.addr, value);
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, value);

        vm.expectEmit(address(gateway));
        emit Deposits.Deposited(USDC_ADDRESS, alice.addr, alice.addr, value);
        vm.prank(anyone);
        _relay(row, signature);

        vm.assertEq(_available(alice.addr), value);
        vm.assertEq(usdc.balanceOf(alice.addr), 0);
        vm.assertEq(usdc.balanceOf(address(gateway)), value);
    }

    function test_aSignatureInThreePartsWorksToo() public {
        usdc.faucet(alice.addr, USDC);
        Authorization memory row = _payment(alice.addr, address(gateway), USDC, 1);
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(alice.key, Signer.digest("ReceiveWithAuthorization", row, _usdcDomain()));
        gateway.depositWithAuthorization(
            USDC_ADDRESS, row.from, row.value, row.validAfter, row.validBefore, row.nonce, v, r, s
        );
        vm.assertEq(_available(alice.addr), USDC);
    }

    function test_aDepositIsTakenOnce() public {
        usdc.faucet(alice.addr, 2 * USDC);
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, USDC);
        _relay(row, signature);
        vm.expectRevert(
            abi.encodeWithSelector(ERC3009.ERC3009UsedAuthorization.selector, alice.addr, row.nonce)
        );
        _relay(row, signature);
        vm.assertEq(_available(alice.addr), USDC);
    }

    function test_aDepositOutsideItsWindowIsRefused() public {
        usdc.faucet(alice.addr, USDC);
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, USDC);
        bytes memory refused = abi.encodeWithSelector(
            ERC3009.ERC3009InvalidAuthorizationTime.selector, row.validAfter, row.validBefore
        );

        vm.warp(row.validAfter);
        vm.expectRevert(refused);
        _relay(row, signature);

        vm.warp(row.validBefore);
        vm.expectRevert(refused);
        _relay(row, signature);

        vm.warp(row.validBefore - 1);
        _relay(row, signature);
        vm.assertEq(_available(alice.addr), USDC);
    }

    function test_anEmptyOrForeignDepositIsRefused() public {
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, 0);
        vm.expectRevert(Deposits.DepositValueZero.selector);
        _relay(row, signature);

        vm.expectRevert(abi.encodeWithSelector(Balances.UnsupportedToken.selector, bob.addr, USDC_ADDRESS));
        gateway.depositWithAuthorization(bob.addr, row.from, 1, row.validAfter, row.validBefore, row.nonce, signature);
    }

    function test_nothingIsTakenWhilePaused() public {
        usdc.faucet(alice.addr, USDC);
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, USDC);
        _pause();
        vm.expectRevert(Pausable.EnforcedPause.selector);
        _relay(row, signature);
    }

    // The front-run deposit. Mallory sees Alice's deposit before it is mined and tries to move the money into the
    // gateway without the credit, or to take the credit.
    function test_attack_aSeenDepositCannotBeTakenPastTheGateway() public {
        usdc.faucet(alice.addr, 10 * USDC);
        (Authorization memory row, bytes memory signature) = _signedDeposit(alice, 10 * USDC);

        // She submits it to the token herself: only the payee, the gateway, may.
        vm.startPrank(mallory.addr);
        vm.expectRevert(abi.encodeWithSelector(IERC20Errors.ERC20InvalidReceiver.selector, address(gateway)));
        usdc.receiveWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );

        // She submits it as a transfer, which anyone may: it was not signed as one.
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        usdc.transferWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );

        // She puts her own name on it: then it is not what Alice signed.
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        gateway.depositWithAuthorization(
            USDC_ADDRESS, mallory.addr, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );

        // She relays it as it is, before Alice's relayer does: Alice is credited, and Mallory has paid the gas.
        _relay(row, signature);
        vm.stopPrank();
        vm.assertEq(_available(alice.addr), 10 * USDC);
        vm.assertEq(_total(mallory.addr), 0);
    }

    // An authorization to pay, signed for the token, is not one to deposit, and the reverse.
    function test_attack_aPaymentCannotBeTurnedIntoADeposit() public {
        usdc.faucet(alice.addr, USDC);
        Authorization memory row = _payment(alice.addr, address(gateway), USDC, 1).signed(alice.key, _usdcDomain());
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _relay(row, abi.encodePacked(row.r, row.s, row.v));
    }

    function _signedDeposit(Account memory account, uint256 value)
        private
        view
        returns (Authorization memory row, bytes memory signature)
    {
        row = _payment(account.addr, address(gateway), value, 1);
        signature = row.receiveSignature(account.key, _usdcDomain());
    }

    function _relay(Authorization memory row, bytes memory signature) private {
        gateway.depositWithAuthorization(
            USDC_ADDRESS, row.from, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );
    }
}
