// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {SkipReason} from "../src/gateway/Authorizations.sol";
import {BurnIntents} from "../src/gateway/BurnIntent.sol";
import {Deposits} from "../src/gateway/Deposits.sol";
import {IERC5267} from "@openzeppelin/contracts/interfaces/IERC5267.sol";
import {GatewayTest} from "./support/GatewayTest.sol";
import {Domain, Signer} from "./support/Signer.sol";
import {vm} from "./support/Vm.sol";

/// Numbers that others rely on, written out. They were taken from USDC and from Circle's contracts and SDK; when one of
/// these tests fails, a wallet's signature or an indexer has stopped working.
contract MagicValuesTest is GatewayTest {
    address private constant CIRCLE_MAINNET = 0x77777777Dcc4d5A8B6E418Fd04D8997ef11000eE;
    address private constant CIRCLE_TESTNET = 0x0077777d7EBA4688BDeF3E311b846F25870A19B9;

    function test_typeHashesAreThoseOfErc3009AndOfCircle() public pure {
        vm.assertEq(
            keccak256(abi.encodePacked("TransferWithAuthorization", Signer.AUTHORIZATION_FIELDS)),
            0x7c7c6cdb67a18743f49ec6fa9b35f50d52ed05cbed4cc592e13b44501c1a2267
        );
        vm.assertEq(
            keccak256(abi.encodePacked("ReceiveWithAuthorization", Signer.AUTHORIZATION_FIELDS)),
            0xd099cc98ef71107a616c4f0f941f04c322d8e254fe26b3c6668db87aae413de8
        );
        vm.assertEq(
            BurnIntents.TRANSFER_SPEC_TYPEHASH, 0x44409c7ba8872720f5fc290d2788c2d70a3905b7ca1cdb2ffa152791a69e089b
        );
        vm.assertEq(
            BurnIntents.BURN_INTENT_TYPEHASH, 0x8b99d17a83a2dd1add9fc2a450e22732c7e8564aa110ab99c20485a7a10ba37c
        );
    }

    function test_usdcsDomainIsArcs() public {
        vm.chainId(5042);
        vm.assertEq(usdc.DOMAIN_SEPARATOR(), 0x940506929bba468048a19b567f4f0d534714bc06604b5c3017e5d16785ccdf84);
        vm.chainId(5042002);
        vm.assertEq(usdc.DOMAIN_SEPARATOR(), 0x361191522483d32a83e70ae7183b4b9629442c13a78bc9921d6f707911c8c6b0);
    }

    // The gateway's code at the address of Circle's gateway has the domain of Circle's gateway.
    function test_theGatewaysDomainIsCirclesButForTheAddress() public {
        _assertDomain(
            5042, CIRCLE_MAINNET, 0x6ebe3f3a24dc29e681ffa696ff381e999d3787bc9c537a2eeef7ab9c5b424b84
        );
        _assertDomain(
            5042002, CIRCLE_TESTNET, 0x777f1a7bd2dd4cb786270c436ca4c6349f27d20cf59769780fe13355920306f0
        );
    }

    function test_selectorsAreCirclesAndUsdcs() public view {
        string memory authorization = "(address,address,uint256,uint256,uint256,bytes32,";
        _assertSelector(gateway.deposit.selector, 0x47e7ef24);
        _assertSelector(gateway.depositFor.selector, 0xb3db428b);
        _assertSelector(_selector("depositWithAuthorization", authorization, "bytes)"), 0x438d4835);
        _assertSelector(_selector("depositWithAuthorization", authorization, "uint8,bytes32,bytes32)"), 0x8a94d4fc);
        _assertSelector(gateway.initiateWithdrawal.selector, 0xc8393ba9);
        _assertSelector(gateway.withdraw.selector, 0x51cff8d9);
        _assertSelector(gateway.availableBalance.selector, 0x3ccb64ae);
        _assertSelector(gateway.authorizationState.selector, 0xe94a0102);
        _assertSelector(_selector("receiveWithAuthorization", authorization, "bytes)"), 0x88b7ab63);
    }

    function test_aDepositHasCirclesTopic() public pure {
        vm.assertEq(Deposits.Deposited.selector, keccak256("Deposited(address,address,address,uint256)"));
        vm.assertEq(bytes32(bytes4(Deposits.Deposited.selector)), bytes32(bytes4(0x4174a943)));
    }

    // The service stores these numbers.
    function test_reasonsKeepTheirNumbers() public pure {
        vm.assertEq(uint256(SkipReason.None), 0);
        vm.assertEq(uint256(SkipReason.ZeroValue), 1);
        vm.assertEq(uint256(SkipReason.SelfTransfer), 2);
        vm.assertEq(uint256(SkipReason.InvalidPayee), 3);
        vm.assertEq(uint256(SkipReason.NotYetValid), 4);
        vm.assertEq(uint256(SkipReason.Expired), 5);
        vm.assertEq(uint256(SkipReason.NonceAlreadyUsed), 6);
        vm.assertEq(uint256(SkipReason.InvalidSignature), 7);
        vm.assertEq(uint256(SkipReason.InsufficientBalance), 8);
    }

    function test_theChainsNumberIsItsId() public {
        vm.assertEq(gateway.domain(), CHAIN_ID);
        vm.chainId(5042);
        vm.assertEq(gateway.domain(), 5042);
    }

    function _assertDomain(uint256 chainId, address at, bytes32 expected) private {
        vm.chainId(chainId);
        vm.etch(at, address(gateway).code);
        (, string memory name, string memory version, uint256 domainChainId, address verifyingContract,,) =
            IERC5267(at).eip712Domain();
        vm.assertEq(Signer.separator(Domain(name, version, domainChainId, verifyingContract)), expected);
    }

    function _selector(string memory name, string memory fields, string memory signature)
        private
        pure
        returns (bytes4)
    {
        return bytes4(keccak256(abi.encodePacked(name, fields, signature)));
    }

    function _assertSelector(bytes4 actual, bytes4 expected) private pure {
        vm.assertEq(bytes32(actual), bytes32(expected));
    }
}
